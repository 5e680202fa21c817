"""Articles and stopwords by language, in normalised form (without punctuation).

The lists are part of the metrics' definitions, as are the rules by which ``text`` cuts texts into
words. Increase ``WORDS_VERSION`` with every change of either, so that reports record which they
used.
"""

from __future__ import annotations

from typing import Final

WORDS_VERSION: Final = 2
FIRST_WORDS: Final = 1
"""The version of replays under ``dedup.tables`` 1. Its rules compare texts as they were written."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ARTICLES: Final[dict[str, frozenset[str]]] = {
    "de": _words("der die das den dem des ein eine einen einem einer eines"),
    "en": _words("a an the"),
    "es": _words("el la los las un una unos unas"),
    "fr": _words("le la les un une des"),
    "it": _words("il lo la i gli le un uno una"),
    "nl": _words("de het een"),
    "pt": _words("o a os as um uma uns umas"),
}

_FUNCTION_WORDS: Final = {
    "de": """
        aber alle allem allen aller alles als also am an ander andere anderen auch auf aus bei beim
        bevor bin bis bist da dabei dadurch dafür dagegen daher damit dann daran darauf daraus darf
        darum davon dazu dein deine deinen deiner denn dessen deshalb dich dies diese diesem diesen
        dieser dieses dir doch dort du durch dürfen er es etwas euch euer eure für gegen gibt hab
        habe haben hat hatte hatten hier hinter ich ihm ihn ihnen ihr ihre ihrem ihren ihrer im in
        indem ins ist ja jede jedem jeden jeder jedes jene jenem jenen jener jetzt kann kein keine
        keinem keinen keiner können könnte man manche mehr mein meine meinem meinen meiner mich mir
        mit muss müssen nach nachdem neben nicht nichts noch nun nur ob obwohl oder ohne sehr sein
        seine seinem seinen seiner seit sich sie sind so solche solchem solchen solcher soll sollen
        sollte sondern sonst sowie über um und uns unser unsere unter viel vom von vor während war
        waren warum was weder weil weiter welche welchem welchen welcher welches wenn wer werde
        werden wie wieder will wir wird wo wollen worden wurde wurden würde würden zu zum zur
        zwar zwischen
    """,
    "en": """
        about above after again against all also am and any are arent as at be because been before
        being below between both but by can cannot cant could couldnt did didnt do does doesnt doing
        dont down during each either else ever every few for from further had hadnt has hasnt have
        havent having he her here hers herself him himself his how i if in into is isnt it its
        itself just may me might more most must my myself neither no nor not of off on once only or
        other our ours ourselves out over own per same shall she should shouldnt so some such than
        that thats their theirs them themselves then there these they this those through thus to too
        under until up upon us very was wasnt we were werent what when where whether which while who
        whom whose why will with within without wont would wouldnt you your yours yourself
        yourselves
    """,
    "es": """
        a al algo alguna algunas alguno algunos ante antes aquel aquella aquellas aquellos aquí así
        aun aunque bajo bien cada casi como con contra cual cuales cuando cuanto de del desde donde
        durante e ella ellas ello ellos en entonces entre era eran eres es esa esas ese eso esos
        esta está estaba estado están estar estas este esto estos estoy fue fueron fui ha había
        habían haber han hasta hay he la le les lo más me mi mía mientras mis mucho muchos muy nada
        ni no nos nosotros nuestra nuestras nuestro nuestros o os otra otras otro otros para pero
        poco por porque pues que qué quien quienes se sea sean según ser será si sí sido siempre sin
        sobre sois solo son soy su sus suya suyo también tan tanto te tiene tienen todo todos tras
        tu tus tuya tuyo u usted ustedes vosotros vuestra vuestro y ya yo él éramos
    """,
    "fr": """
        ai ainsi alors après as au aucun aucune aussi autre autres aux avait avaient avant avec avez
        avoir avons c ça car ce ceci cela celle celles celui cependant ces cet cette ceux chaque
        chez ci comme comment d dans de déjà depuis dont donc du durant elle elles en encore entre
        es est et étaient était été êtes être eu eux fait fois font fut hors ici il ils j je jusqu
        jusque l là leur leurs lors lorsque lui m ma mais me même mêmes mes moi moins mon n ne ni
        non nos notre nous on ont ou où par parce pas pendant peu peut peuvent plus plutôt pour
        pourquoi puis qu quand que quel quelle quelles quels qui quoi s sa sans sauf se selon sera
        seront ses si sinon soi soient sois soit sommes son sont sous suis sur t ta tandis tant te
        tel telle tes toi ton toujours tous tout toute toutes très tu vers voici voilà vos votre
        vous y à
    """,
    "it": """
        a ad agli ai al alla alle allo anche ancora avere aveva c che chi ci come con contro cosa
        così cui da dagli dai dal dalla dalle dallo degli dei del della delle dello dentro di dopo
        dove e è ed era erano essere fa fino fra già ha hanno ho in io l lei li loro lui ma me mi
        mia mie miei mio molto ne negli nei nel nella nelle nello no noi non nostra nostri nostro o
        ogni oppure per perché però più poi prima qua quale quali quando quanto quella quelle quelli
        quello questa queste questi questo qui s se sei senza si sia siamo siete solo sono sopra
        sotto stata stati stato su sua sue sugli sui sul sulla sulle sullo suo suoi te ti tra tu tua
        tue tuo tuoi tutti tutto vi voi vostra vostro
    """,
    "nl": """
        aan al alle alleen als altijd andere ben bij binnen boven daar daarom dan dat deze die dit
        doch doen door dus en er geen had hadden heb hebben heeft hem hen hier hij hoe hun iets ik
        in is ja jij je jou jouw jullie kan kon kunnen maar me meer men met mij mijn moet moeten na
        naar nadat niet niets nog nu of om omdat onder ons onze ook op over reeds sinds te tegen
        terwijl toch toen tot tussen u uit uw van veel voor want waren was wat we wel welke wie wij
        word worden werd werden wordt zal ze zelf zich zij zijn zo zonder zou zouden
    """,
    "pt": """
        à ao aos aquela aquelas aquele aqueles aquilo assim até cada com como contra da das de dela
        delas dele deles depois desde dessa desse desta deste do dos durante e é ela elas ele eles
        em entre era eram essa essas esse esses esta está estão estar estas estava este estes estou
        eu foi foram há isso isto já lhe lhes mais mas me mesmo meu meus minha minhas muito na não
        nas nem no nos nós nossa nossas nosso nossos num numa ou onde para pela pelas pelo pelos
        por porque qual quando que quem se seja sem ser será seu seus si só sob sobre somos sou sua
        suas também te tem têm tenho ter teu teus tinha tua tuas tu tudo você vocês vos
    """,
}

STOPWORDS: Final[dict[str, frozenset[str]]] = {
    language: _words(words) | ARTICLES[language] for language, words in _FUNCTION_WORDS.items()
}
